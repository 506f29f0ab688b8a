// Programs that are linked on a newer Debian and run with the glibc 2.31 of Debian 11: the linker
// takes these functions for those of the same name (--wrap, see cmake/MezzoOlderGlibc.cmake), which
// glibc has had under newer versions since. They call the older versions, which newer ones of glibc
// still have. Only x86-64, where these versions are GLIBC_2.2.5.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MEZZO_HIDDEN __attribute__((visibility("hidden")))

// Moved from libpthread and libdl into libc in 2.34 (pthread_sigmask in 2.32): the same functions
// under another version.
#define MEZZO_OLDER(result, name, parameters, arguments)    \
  __asm__(".symver mezzo_" #name "," #name "@GLIBC_2.2.5"); \
  extern "C" result mezzo_##name parameters;                \
  extern "C" MEZZO_HIDDEN result __wrap_##name parameters { \
    return mezzo_##name arguments;                          \
  }

using Start = void* (*)(void*);
using Action = void (*)();
using Destroy = void (*)(void*);

MEZZO_OLDER(int, pthread_create, (pthread_t * t, const pthread_attr_t* a, Start s, void* v),
            (t, a, s, v))
MEZZO_OLDER(int, pthread_join, (pthread_t t, void** v), (t, v))
MEZZO_OLDER(int, pthread_detach, (pthread_t t), (t))
MEZZO_OLDER(int, pthread_once, (pthread_once_t * o, Action a), (o, a))
MEZZO_OLDER(int, pthread_key_create, (pthread_key_t * k, Destroy d), (k, d))
MEZZO_OLDER(int, __pthread_key_create, (pthread_key_t * k, Destroy d), (k, d))
MEZZO_OLDER(int, pthread_key_delete, (pthread_key_t k), (k))
MEZZO_OLDER(void*, pthread_getspecific, (pthread_key_t k), (k))
MEZZO_OLDER(int, pthread_setspecific, (pthread_key_t k, const void* v), (k, v))
MEZZO_OLDER(int, pthread_rwlock_rdlock, (pthread_rwlock_t * l), (l))
MEZZO_OLDER(int, pthread_rwlock_wrlock, (pthread_rwlock_t * l), (l))
MEZZO_OLDER(int, pthread_rwlock_unlock, (pthread_rwlock_t * l), (l))
MEZZO_OLDER(int, pthread_sigmask, (int h, const sigset_t* s, sigset_t* o), (h, s, o))
MEZZO_OLDER(void*, dlopen, (const char* n, int f), (n, f))
MEZZO_OLDER(void*, dlsym, (void* l, const char* n), (l, n))
MEZZO_OLDER(char*, dlerror, (), ())
MEZZO_OLDER(int, dladdr, (const void* a, Dl_info* i), (a, i))

// Functions since 2.33, inline before, over these. 1 is the layout of the struct.
__asm__(".symver mezzo_xstat,__xstat@GLIBC_2.2.5");
__asm__(".symver mezzo_lxstat,__lxstat@GLIBC_2.2.5");
__asm__(".symver mezzo_fxstat,__fxstat@GLIBC_2.2.5");
extern "C" {
int mezzo_xstat(int layout, const char* path, struct stat* found);
int mezzo_lxstat(int layout, const char* path, struct stat* found);
int mezzo_fxstat(int layout, int file, struct stat* found);

MEZZO_HIDDEN int __wrap_stat(const char* path, struct stat* found) {
  return mezzo_xstat(1, path, found);
}
MEZZO_HIDDEN int __wrap_lstat(const char* path, struct stat* found) {
  return mezzo_lxstat(1, path, found);
}
MEZZO_HIDDEN int __wrap_fstat(int file, struct stat* found) {
  return mezzo_fxstat(1, file, found);
}
MEZZO_HIDDEN int __wrap_fstat64(int file, struct stat* found) {
  return mezzo_fxstat(1, file, found);
}

// New functions. Names of signals are a courtesy of error messages, which say the number without.
MEZZO_HIDDEN int __wrap_close_range(unsigned first, unsigned last, int flags) {
  return static_cast<int>(
      syscall(436, first, last, flags));  // an error before Linux 5.9, as the callers expect
}
MEZZO_HIDDEN const char* __wrap_sigdescr_np(int number) {
  return strsignal(number);
}
MEZZO_HIDDEN const char* __wrap_sigabbrev_np(int number) {
  void* found = mezzo_dlsym(RTLD_DEFAULT, "sigabbrev_np");
  return found == nullptr ? nullptr : reinterpret_cast<const char* (*)(int)>(found)(number);
}
MEZZO_HIDDEN unsigned __wrap_arc4random() {
  unsigned number = 0;
  if (getrandom(&number, sizeof(number), 0) != static_cast<ssize_t>(sizeof(number)))
    __builtin_trap();
  return number;
}

// Whether the process has one thread: saying that it has several is always right.
MEZZO_HIDDEN char __libc_single_threaded = 0;

// The unwinder of g++ 12 asks where the frames of a function are described (2.35). It reads no
// other field.
namespace {
struct Asked {
  ElfW(Addr) address;
  void* frames;
};

int look(dl_phdr_info* library, size_t, void* asked_here) {
  auto& asked = *static_cast<Asked*>(asked_here);
  bool is_inside = false;
  void* frames = nullptr;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = library->dlpi_phdr[i];
    const ElfW(Addr) begin = library->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && asked.address - begin < part.p_memsz) is_inside = true;
    if (part.p_type == PT_GNU_EH_FRAME) frames = reinterpret_cast<void*>(begin);
  }
  if (is_inside) asked.frames = frames;
  return is_inside ? 1 : 0;
}
}  // namespace

MEZZO_HIDDEN int _dl_find_object(void* address, dl_find_object* found) noexcept {
  Asked asked{reinterpret_cast<ElfW(Addr)>(address), nullptr};
  if (dl_iterate_phdr(look, &asked) == 0 || asked.frames == nullptr) return -1;
  found->dlfo_eh_frame = asked.frames;
  return 0;
}
}
