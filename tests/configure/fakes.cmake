# Stand-ins for what a machine has.

# A folder that looks like LibTorch of a version.
function(fake_libtorch folder minor)
  file(WRITE ${folder}/include/ATen/core/Tensor.h "")
  file(WRITE ${folder}/include/torch/headeronly/version.h
       "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR ${minor}\n#define TORCH_VERSION_PATCH 1\n")
  file(WRITE ${folder}/lib/libtorch_cpu.so "")
  file(WRITE ${folder}/lib/libc10.so "")
endfunction()

# A program that calls itself a compiler, nvcc or python3 of some kind.
function(fake_program path text)
  file(WRITE ${path} "#!/bin/sh\n${text}\n")
  file(CHMOD ${path} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endfunction()
