#include "kernels/cuda/coded_rows.h"

namespace mererun::cuda {

namespace {

/// Bytes from the first element to the end of the last one.
std::size_t extent(const TensorView& v) {
  if (v.empty() || v.rows <= 0) return 0;
  return static_cast<std::size_t>((v.rows - 1) * v.row_stride + v.cols) * size_of(v.dtype);
}

}  // namespace

bool is_same(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.rows == b.rows && a.cols == b.cols && a.row_stride == b.row_stride;
}

ActivationCodes CodedRows::of(const LaunchContext& context, const TensorView& x, int group, CodeOrder order) {
  Forms& forms = forms_[{group, order}];
  for (int i = 0; i < 2; ++i) {
    if (!forms.form[i].is_current || !is_same(forms.form[i].view, x)) continue;
    forms.latest = i;
    return forms.form[i].codes;
  }
  const ActivationCodes codes = prepare(context, x, group, order);
  run_code_rows(context, x, codes);
  return codes;
}

ActivationCodes CodedRows::prepare(const LaunchContext& context, const TensorView& x, int group,
                                   CodeOrder order) {
  Forms& forms = forms_[{group, order}];
  forms.latest = 1 - forms.latest;
  Form& form = forms.form[forms.latest];
  form.view = x;
  form.codes.rows = x.rows;
  form.codes.in = x.cols;
  form.codes.group = group;
  form.codes.order = order;
  form.codes.codes = static_cast<uint4*>(form.code_memory.get(codes_bytes(x.rows, x.cols), context));
  form.codes.sides = static_cast<float2*>(form.side_memory.get(sides_bytes(x.rows, x.cols, group), context));
  form.is_current = true;
  return form.codes;
}

ActivationCodes CodedRows::of_entries(const LaunchContext& context, const TensorView& x, int group,
                                      const ExpertList& list, ExpertRows rows) {
  ActivationCodes codes;
  codes.rows = most_entries(list.assignments(), list.experts, list.width) * kBlockColumns;
  codes.in = x.cols;
  codes.group = group;
  codes.order = CodeOrder::kPlanes;
  codes.codes = static_cast<uint4*>(entry_codes_.get(codes_bytes(codes.rows, codes.in), context));
  codes.sides = static_cast<float2*>(entry_sides_.get(sides_bytes(codes.rows, codes.in, group), context));
  run_code_entries(context, x, list, rows, codes);
  return codes;
}

void CodedRows::forget(const void* data, std::size_t bytes) {
  const auto* begin = static_cast<const unsigned char*>(data);
  for (auto& [key, forms] : forms_) {
    for (Form& form : forms.form) {
      const auto* own = static_cast<const unsigned char*>(form.view.data);
      if (begin < own + extent(form.view) && own < begin + bytes) form.is_current = false;
    }
  }
}

void CodedRows::forget(const TensorView& view) { forget(view.data, extent(view)); }

}  // namespace mererun::cuda
