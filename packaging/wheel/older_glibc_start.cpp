// The start of a program for the older glibc (see older_glibc.cpp). Since 2.34 it is glibc that
// runs the constructors of a program; before, code in the program did, which a program that was
// linked with a newer glibc lacks.
extern "C" {
using Constructor = void (*)(int, char**, char**);
extern const Constructor __init_array_start[] __attribute__((visibility("hidden")));
extern const Constructor __init_array_end[] __attribute__((visibility("hidden")));
void _init();

static void run_constructors(int count, char** words, char** environment) {
  _init();
  for (const Constructor* one = __init_array_start; one != __init_array_end; ++one)
    (*one)(count, words, environment);
}

__asm__(".symver mezzo_libc_start_main,__libc_start_main@GLIBC_2.2.5");
int mezzo_libc_start_main(int (*)(int, char**, char**), int, char**, void (*)(int, char**, char**),
                          void (*)(), void (*)(), void*);

__attribute__((visibility("hidden"))) int __wrap___libc_start_main(
    int (*main)(int, char**, char**), int count, char** words, void (*)(int, char**, char**),
    void (*finish)(), void (*finish_libraries)(), void* stack) {
  return mezzo_libc_start_main(main, count, words, run_constructors, finish, finish_libraries,
                               stack);
}
}
