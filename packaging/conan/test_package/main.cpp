// The converter's library, loaded and asked.
#include <mezzo/convert_c.h>

#include <cstdio>

int main() {
  std::printf("mezzo %s\n", mezzo_version());
  return 0;
}
