# tdi_embed(target symbol file...)
#
# Compiles the files, one after the other, into `target` as
#     extern const char tdi_embed_<symbol>[];      ends with a NUL that _len does not count
#     extern const size_t tdi_embed_<symbol>_len;
# The user of the text writes these two declarations itself.
function(tdi_embed target symbol)
    set(output ${CMAKE_CURRENT_BINARY_DIR}/tdi_embed_${symbol}.c)
    set(inputs ${ARGN})
    list(TRANSFORM inputs PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    add_custom_command(
        OUTPUT ${output}
        COMMAND ${CMAKE_COMMAND} -D SYMBOL=${symbol} -D OUTPUT=${output} "-DINPUTS=${inputs}"
                -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
        DEPENDS ${inputs} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
        VERBATIM)
    # Objects of their own: a generated source is known only in the folder that makes it.
    add_library(tdi_embed_${symbol} OBJECT ${output})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:tdi_embed_${symbol}>)
endfunction()
