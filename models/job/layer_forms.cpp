// Which layers of a job are alike.
#include "models/job/layer_forms.h"

#include <algorithm>

namespace plimsoll {

std::vector<bool> shortest_period(const std::vector<bool>& layers) {
  for (std::size_t period = 1; period < layers.size(); ++period) {
    bool repeats = true;
    for (std::size_t i = period; i < layers.size(); ++i)
      repeats = repeats && layers[i] == layers[i % period];
    if (repeats) return {layers.begin(), layers.begin() + std::ptrdiff_t(period)};
  }
  return layers;
}

LayerForm form_of_layer(const Job& job, std::int64_t layer) {
  // A window as long as a sequence hides nothing.
  const bool counts = job.window < job.sequence || job.rotary.window_base > 0;
  return {.windowed = counts && has_window(job, layer),
          .turned = has_rotary(job, layer),
          .experts = has_experts(job, layer)};
}

std::vector<FormLayers> layer_forms(const Job& job) {
  std::vector<FormLayers> forms;
  for (std::int64_t layer = 0; layer < job.layers; ++layer) {
    const LayerForm form = form_of_layer(job, layer);
    auto known = std::find_if(forms.begin(), forms.end(),
                              [&](const FormLayers& one) { return one.form == form; });
    if (known == forms.end()) known = forms.insert(forms.end(), {form, {}});
    known->layers.push_back(layer);
  }
  return forms;
}

bool alternate(std::span<const FormLayers> forms) {
  return std::ranges::any_of(forms, [](const FormLayers& one) {
    return one.layers.back() - one.layers.front() + 1 != std::int64_t(one.layers.size());
  });
}

std::string block_name(const LayerForm& form, std::span<const FormLayers> forms) {
  const auto differ = [&](bool LayerForm::*choice) {
    return std::ranges::any_of(
        forms, [&](const FormLayers& other) { return other.form.*choice != form.*choice; });
  };
  const bool some = differ(&LayerForm::windowed);
  std::string prefix = !some ? "" : form.windowed ? "windowed_" : "full_";
  if (!form.turned && differ(&LayerForm::turned)) prefix += "unturned_";
  return prefix + (form.experts ? "expert_layer" : "layer");
}

bool layers_differ(const Job& job) {
  if (job.branch || job.mtp) return true;
  const LayerForm first = form_of_layer(job, 0);
  for (std::int64_t layer = 1; layer < job.layers; ++layer) {
    if (form_of_layer(job, layer) != first) return true;
  }
  return false;
}

}  // namespace plimsoll
