// Stands where CUDA's driver would be found: libcuda.so.1, of which nothing is called.
extern "C" int cuInit(unsigned) {
  return 0;
}
