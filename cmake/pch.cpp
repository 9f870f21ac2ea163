// Carries the precompiled header; see PrunexRooms.cmake.
