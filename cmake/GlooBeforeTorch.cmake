# libtorch_cpu.so exports the symbols of its own, different copy of Gloo. The first library on a link line wins, so
# libgloo must stand before it on every one. CMake puts a library before those it depends on: say that gloo does.
target_link_libraries(gloo INTERFACE LibTorch::torch)
# So does libtorch_cuda.so, which is an option of the line and stands before all libraries.
if(TARGET LibTorch::kernels)
  set_target_properties(LibTorch::kernels PROPERTIES INTERFACE_LINK_OPTIONS
    "LINKER:--push-state,--no-as-needed,$<TARGET_LINKER_FILE:gloo>,${LibTorch_CUDA_LIBRARY},--pop-state")
endif()
