#include "model/residual_form.h"

#include "model/flash_form.h"
#include "model/plain_form.h"

namespace mererun {

std::unique_ptr<ResidualForm> make_residual_form(Ops& ops, const ModelConfig& config,
                                                 const ModelWeights& weights,
                                                 const Activations& activations) {
  if (config.flash) return std::make_unique<FlashForm>(ops, config, weights, activations);
  return std::make_unique<PlainForm>(ops, config, weights, activations);
}

}  // namespace mererun
