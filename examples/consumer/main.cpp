// The smallest program on an installed Mezzo.
#include <mezzo/error.h>
#include <mezzo/version.h>

#include <cstdio>

int main() {
  try {
    std::printf("mezzo %s\n", mezzo::version().c_str());
    throw mezzo::ConfigError("[consumer] caught across the library");
  } catch (const mezzo::Error& error) {
    std::printf("%s\n", error.what());
  }
  return 0;
}
