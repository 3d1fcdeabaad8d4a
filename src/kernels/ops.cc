#include "kernels/ops.h"

#include <vector>

#include "kernels/validate.h"

namespace mererun {

void Ops::selected_rows(const SelectedRowsParams& p) {
  validate(p);
  const LinearParams::Target all{p.weight, p.scratch, {}};
  linear({.x = p.x, .targets = {&all, 1}});
  std::vector<std::int32_t> rows(static_cast<std::size_t>(p.rows.cols));
  download(rows.data(), p.rows.data, rows.size() * sizeof(std::int32_t));
  for (std::size_t j = 0; j < rows.size(); ++j)
    copy(p.out.row<float>(0) + j, p.scratch.row<float>(0) + rows[j], sizeof(float));
}

}  // namespace mererun
