// Compiled once: what most tests include of other projects (tests/CMakeLists.txt).
