# Language, warnings, hardening and sanitizers, the same for the whole tree.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Asserts stay on in every build, so NDEBUG is never defined.
set(CMAKE_C_FLAGS_DEBUG "-Og -g")
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

# The one feature-test macro: no source file defines another.
add_compile_definitions(_GNU_SOURCE)

add_compile_options(
    -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wstrict-prototypes
    -Wmissing-prototypes -Wold-style-definition -Wvla -Wwrite-strings -Wcast-qual -Wformat=2
    -Wundef -Wnull-dereference -Wdouble-promotion -Wswitch-enum -Wimplicit-fallthrough)
if(CMAKE_C_COMPILER_ID STREQUAL GNU)
    add_compile_options(-Wduplicated-cond -Wduplicated-branches -Wlogical-op)
else()
    add_compile_options(-Wthread-safety -Wcomma)
endif()
if(TIDINGS_WERROR)
    add_compile_options(-Werror)
endif()

add_compile_options(-fstack-protector-strong)
add_link_options(-Wl,-z,relro,-z,now)
include(CheckPIESupported)
check_pie_supported()
if(TIDINGS_SANITIZE)
    # Fortified calls would hide from the sanitizers what they look for.
    add_compile_options(-fsanitize=${TIDINGS_SANITIZE} -fno-sanitize-recover=all
                        -fno-omit-frame-pointer)
    string(REPLACE "fuzzer-no-link," "" link_sanitize "${TIDINGS_SANITIZE}")
    add_link_options(-fsanitize=${link_sanitize})
else()
    add_compile_definitions(_FORTIFY_SOURCE=2)
endif()
