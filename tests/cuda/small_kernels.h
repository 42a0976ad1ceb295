// Small kernels, each with the barriers that it needs and without them. They are compiled as
// kernels of the product are, so that the emulation sees what they do to shared memory.
#pragma once

namespace plimsoll {

/// Every thread writes a value to dynamic shared memory and reads that of the next thread of its
/// block, or of its warp. Blocks store what they have read `apart`, or in one place.
void shift_in_block(bool barrier, bool apart, float* seen);
void shift_in_warp(bool barrier);

/// Thread 0 tells the others a value, over and over, in a shared variable. Barriers come before
/// they read it and before it is written again.
void tell(bool before_reads, bool before_writes);

/// Each of two tiles is copied while the other is read. The next copy starts after the barrier or
/// before it, and is waited for or not.
void copy_tiles(const float* from, bool starts_after_barrier, bool waits, bool barrier);

/// Reads what nobody has written.
void read_first();

}  // namespace plimsoll
