# Warnings for flopcast's own code, each with a mistake that it catches.
add_library(flopcast_warnings INTERFACE)
set(flopcast_warning_options
            -Wall -Wextra            # the compilers' selection of likely mistakes
            -Wpedantic               # accidental extensions: the browser build uses another compiler
            -Wshadow                 # a local variable that hides a member or parameter
            -Wconversion             # a 64-bit time or byte count squeezed into 32 bits
            -Wdouble-promotion       # float arithmetic silently done in double
            -Wold-style-cast         # casts that cannot be searched for
            -Wnon-virtual-dtor       # deletion through a base class without a virtual destructor
            -Woverloaded-virtual     # an override that became an overload
            $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>  # part of -Wconversion in Clang but not in GCC
            $<$<CXX_COMPILER_ID:GNU>:-Wduplicated-cond>    # the second branch of an if chain can never run
            $<$<CXX_COMPILER_ID:GNU>:-Wlogical-op>         # && instead of &, or a condition tested twice
            $<$<CXX_COMPILER_ID:GNU>:-Wsuggest-override>  # an override that a change of the base class would orphan
            # g++ 12 falsely reports overlapping copies in "text" + std::string (GCC bug 105651).
            $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(FLOPCAST_WARNINGS_AS_ERRORS)
  list(APPEND flopcast_warning_options -Werror)
endif()
# Only for C++: nvcc has different warning options.
target_compile_options(flopcast_warnings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${flopcast_warning_options}>")
