# libtorch_cpu.so exports the symbols of its own, different copy of Gloo. The first library on a link line wins, so
# libgloo must stand before it on every one. CMake puts a library before those it depends on: say that gloo does.
target_link_libraries(gloo INTERFACE LibTorch::torch)
