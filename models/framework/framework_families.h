// Presets by family, for models/framework/framework.cpp only.
#pragma once

#include "models/framework/framework.h"

namespace plimsoll {

constexpr Bytes mebibytes(std::int64_t count) { return Bytes(count << 20); }

// The limits of each preset (models/framework/framework_capabilities.cpp).
Capabilities megatron_lm_2021_can();
Capabilities megatron_lm_2022_can();
Capabilities megatron_lm_can();
Capabilities megatron_fsdp_can();
Capabilities megatron_deepspeed_can();
Capabilities megatron_deepspeed_2020_can();
Capabilities deepspeed_zero3_can();
Capabilities pytorch_fsdp_can();
Capabilities torchtitan_can();
Capabilities pytorch_autocast_can();
Capabilities paddle_can();

/// What PyTorch on an NVIDIA GPU has in common over the years.
Framework pytorch_on_gpu();

Framework megatron_lm();
Framework megatron_fsdp();
Framework megatron_lm_2022();
Framework megatron_lm_2021();
Framework megatron_deepspeed();
Framework megatron_deepspeed_2020();
Framework megatron_core_deterministic();

Framework pytorch_fsdp();
Framework torchtitan();
Framework torchtitan_compiled();
Framework torchtitan_async_tp();
Framework pytorch_autocast();

/// How ZeRO-3 of DeepSpeed gathered parameters, around pull request 1188.
enum class ZeroGather : std::uint8_t {
  before,  ///< a call, with a list of outputs, for each tensor
  list,    ///< a fetch for each module, with lists of outputs
  flat,    ///< a fetch for each module, into one output
};
Framework deepspeed_zero3(ZeroGather gather);

/// Paddle's static graph on V100s, and on Ascend NPUs.
Framework paddle_2_1();
Framework paddle_2_2();
Framework paddle_npu();

}  // namespace plimsoll
