// Debian's libyaml-cpp.a is compiled for programs: it addresses this flag of the C library directly, which a shared
// object cannot. A local flag, set to "threads may run", lets the module contain it; reference counts are then always
// atomic.
extern "C" [[gnu::visibility("hidden")]] char __libc_single_threaded;  // NOLINT(readability-identifier-naming)
char __libc_single_threaded = 0;
