# The warnings of flopcast's own code, each with the mistake it has been known to catch.
add_library(flopcast_warnings INTERFACE)
set(flopcast_warning_options
            -Wall -Wextra            # the compilers' own selection of likely mistakes
            -Wpedantic               # leaving the standard by accident: the browser build uses another compiler
            -Wshadow                 # a local that hides the member or parameter that was meant
            -Wconversion             # a 64-bit time or byte count squeezed into 32 bits
            -Wdouble-promotion       # float arithmetic silently done in double
            -Wold-style-cast         # casts that nobody can search for
            -Wnon-virtual-dtor       # deleting through a base that does not clean up
            -Woverloaded-virtual     # an override that became an overload
            $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>  # Clang counts it to -Wconversion, GCC does not
            $<$<CXX_COMPILER_ID:GNU>:-Wduplicated-cond>    # the second branch of an if chain can never run
            $<$<CXX_COMPILER_ID:GNU>:-Wlogical-op>         # && where & was meant, or a condition tested twice
            $<$<CXX_COMPILER_ID:GNU>:-Wsuggest-override>  # an override that a changed base would orphan
            # g++ 12 sees overlapping copies in "text" + std::string that are not there (GCC bug 105651).
            $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(FLOPCAST_WARNINGS_AS_ERRORS)
  list(APPEND flopcast_warning_options -Werror)
endif()
# nvcc has words of its own.
target_compile_options(flopcast_warnings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${flopcast_warning_options}>")
