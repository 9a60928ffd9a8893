# Declaring tests. ctest knows them all; scripts/run-tests asks ctest for the list and counts the
# single tests inside each program.
#
# tdi_test(name SOURCES a.c... [LABELS threaded...] [TIMEOUT seconds])
#     A cmocka program, linked with tidings_core.
# tdi_py_test(name SCRIPT x.py [LABELS e2e...] [TIMEOUT seconds])
#     A Python program that prints `ok N - name` or `not ok N - name` for each of its tests.
#
# Labels with a meaning for `make test`:
#     threaded   runs under TSan too        e2e    runs with the plain build only
#     long       only in `make test-long`
#
# Environment of both: TIDINGS the path of the program (if it is built), TIDINGS_BUILD the build
# folder, PYTHONPATH tests/support. The default time limit is 300 s.

set(TDI_TEST_TIMEOUT_S 300)
set(TDI_SANITIZER_ENV
    # cmocka would turn a crash into a failed test without the sanitizer's report.
    ASAN_OPTIONS=handle_segv=2:handle_sigbus=2:handle_sigfpe=2:handle_sigill=2:detect_leaks=1:detect_stack_use_after_return=1
    UBSAN_OPTIONS=print_stacktrace=1
    TSAN_OPTIONS=second_deadlock_stack=1)

function(tdi_register_test name labels timeout)
    set(environment TIDINGS_BUILD=${CMAKE_BINARY_DIR}
                    PYTHONPATH=${CMAKE_SOURCE_DIR}/tests/support PYTHONDONTWRITEBYTECODE=1)
    if(TARGET tidings)
        list(APPEND environment TIDINGS=${CMAKE_BINARY_DIR}/tidings)
    endif()
    if(TIDINGS_SANITIZE)
        list(APPEND environment ${TDI_SANITIZER_ENV})
    endif()
    if(NOT timeout)
        set(timeout ${TDI_TEST_TIMEOUT_S})
    endif()
    set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} LABELS "${labels}"
                         ENVIRONMENT "${environment}")
endfunction()

# TSan is for what has threads: the other programs are not even built.
macro(tdi_skip_if_not_threaded labels)
    if(TIDINGS_SANITIZE STREQUAL "thread" AND NOT "threaded" IN_LIST ${labels})
        return()
    endif()
endmacro()

function(tdi_test name)
    cmake_parse_arguments(PARSE_ARGV 1 ARG "" "TIMEOUT" "SOURCES;LABELS")
    if(NOT ARG_SOURCES OR ARG_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "tdi_test(${name}): write SOURCES a.c... [LABELS x...] [TIMEOUT s]")
    endif()
    tdi_skip_if_not_threaded(ARG_LABELS)
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE tidings_core ${CMOCKA_LIBRARY})
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support)
    target_include_directories(${name} SYSTEM PRIVATE ${CMOCKA_INCLUDE_DIR})
    add_test(NAME ${name} COMMAND ${name})
    tdi_register_test(${name} "${ARG_LABELS}" "${ARG_TIMEOUT}")
endfunction()

function(tdi_py_test name)
    cmake_parse_arguments(PARSE_ARGV 1 ARG "" "TIMEOUT;SCRIPT" "LABELS")
    if(NOT ARG_SCRIPT OR ARG_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "tdi_py_test(${name}): write SCRIPT x.py [LABELS x...] [TIMEOUT s]")
    endif()
    tdi_skip_if_not_threaded(ARG_LABELS)
    add_test(NAME ${name} COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SCRIPT})
    tdi_register_test(${name} "${ARG_LABELS}" "${ARG_TIMEOUT}")
endfunction()

# tdi_fuzz(name SOURCES a.c...)
#     A libFuzzer program with LLVMFuzzerTestOneInput(); its seeds lie in fuzz/corpus/<name>/.
function(tdi_fuzz name)
    cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES")
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE tidings_core)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzzers)
endfunction()
