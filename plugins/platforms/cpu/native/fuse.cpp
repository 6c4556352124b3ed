// Joins neighbours of a recorded program into one kernel where that gives the same bits.
//
//   linear -> gated of its output          the linear gates as it stores (kGate)
//   linear -> norm that adds its output    the linear adds to the residual (kAddTo), the norm reads the residual
//   linear -> add of its output            the same, and the add goes
//   norm -> linear on its output           the linear's threads normalise the rows that they prepare
//
// What a linear no longer stores must be dead: a later step of the program overwrites all of it before anything reads it.
// What the last such step leaves stays where it was, since nobody knows who reads it after a replay.
#include "program.h"

namespace tc {
namespace {

int64_t size_of(int element) { return element == kFloat32 ? 4 : 2; }

// Rows of `width` bytes, `stride` apart.
struct Span {
  const char* at = nullptr;
  int64_t stride = 0, width = 0, rows = 0;
  Span() = default;
  Span(const void* p, int element, int64_t stride, int64_t width, int64_t rows)
      : at(static_cast<const char*>(p)), stride(stride * size_of(element)), width(width * size_of(element)), rows(rows) {}
  const char* end() const { return at + (rows - 1) * stride + width; }
  bool meets(const Span& o) const { return at && o.at && rows > 0 && o.rows > 0 && at < o.end() && o.at < end(); }
  bool covers(const Span& o) const { return at == o.at && stride == o.stride && width >= o.width && rows >= o.rows; }
};

// What a step reads and the one tensor that it writes. `known` is false for ops that are not told apart here.
struct Access {
  Span reads[3], written;
  bool known = true;
};

Access access_of(const Step& step) {
  const AnyArgs& args = step.args;
  Access found;
  switch (step.op) {
    case Op::kLinear: {
      const LinearArgs& a = args.linear;
      found.reads[0] = Span(a.x, a.element, a.x_stride, a.w->k, a.rows);
      found.written = Span(a.out, a.out_element, a.out_stride, a.epilogue == kGate ? a.w->n / 2 : a.w->n, a.rows);
      if (a.epilogue == kAddTo) found.reads[1] = found.written;
      return found;
    }
    case Op::kNorm: {
      const NormArgs& a = args.norm;
      if (a.inner != 1) return found.known = false, found;
      found.reads[0] = Span(a.x, a.x_element, a.x_stride, a.width, a.rows);
      found.written = Span(a.out, a.out_element, a.out_stride, a.width, a.rows);
      // A residual is changed and stays; whoever asks about it must see both.
      if (a.residual) found.reads[1] = Span(a.residual, a.residual_element, a.residual_stride, a.width, a.rows);
      return found;
    }
    case Op::kGated: {
      const GatedArgs& a = args.gated;
      found.reads[0] = Span(a.x, a.element, a.x_stride, 2 * a.width, a.rows);
      found.written = Span(a.out, a.element, a.out_stride, a.width, a.rows);
      return found;
    }
    case Op::kPointwise: {
      const PointwiseArgs& a = args.pointwise;
      found.reads[0] = Span(a.x, a.x_element, a.x_stride, a.width, a.rows);
      found.written = Span(a.out, a.out_element, a.out_stride, a.width, a.rows);
      if (a.kind == kAdd) found.reads[1] = found.written;
      return found;
    }
    case Op::kRotary: {
      const RotaryArgs& a = args.rotary;
      const auto heads = [&](const void* p, int64_t stride, int64_t head_stride, int64_t count) {
        return Span(p, a.element, stride, (count - 1) * head_stride + a.rotary_dim, a.rows);
      };
      found.reads[0] = heads(a.q, a.q_stride, a.q_head_stride, a.q_heads);
      found.reads[1] = heads(a.k, a.k_stride, a.k_head_stride, a.k_heads);
      return found;
    }
    case Op::kAttention: {
      const AttentionArgs& a = args.attention;
      found.reads[0] = Span(a.q, a.element, a.q_stride, a.heads * a.head_size, a.tokens);
      found.reads[1] = Span(a.k, a.element, a.k_stride, a.kv_heads * a.head_size, a.tokens);
      found.reads[2] = Span(a.v, a.element, a.v_stride, a.kv_heads * a.value_size, a.tokens);
      found.written = Span(a.out, a.element, a.out_stride, a.heads * a.value_size, a.tokens);
      return found;
    }
    default: return found.known = false, found;
  }
}

// Whether a step after `from` overwrites the span before any reads it.
bool dead_after(const std::vector<Step>& steps, size_t from, const Span& span) {
  for (size_t i = from + 1; i < steps.size(); i++) {
    const Access access = access_of(steps[i]);
    if (!access.known) return false;
    for (const Span& read : access.reads)
      if (read.meets(span)) return false;
    if (access.written.covers(span)) return true;
    if (access.written.meets(span)) return false;
  }
  return false;
}

Span out_of(const LinearArgs& a) { return Span(a.out, a.out_element, a.out_stride, a.w->n, a.rows); }

bool is(const Span& a, const Span& b) { return a.covers(b) && b.covers(a); }

bool gates(const Step& first, const Step& next, Step& joined) {
  if (first.op != Op::kLinear || next.op != Op::kGated) return false;
  LinearArgs a = first.args.linear;
  const GatedArgs& g = next.args.gated;
  if (a.epilogue != kStore || a.w->n % (2 * kPanel) || a.w->n != 2 * g.width || a.out_element != g.element) return false;
  const Access gated = access_of(next);
  if (!is(gated.reads[0], out_of(a)) || gated.written.meets(access_of(first).reads[0])) return false;
  a.epilogue = kGate;
  a.gate = g.kind;
  a.via_element = a.out_element;
  a.out = g.out;
  a.out_stride = g.out_stride;
  joined = Step(a);
  return true;
}

// The linear with its output added to what the next step adds it to.
bool adds(const Step& first, const Step& next, Step& joined) {
  if (first.op != Op::kLinear) return false;
  LinearArgs a = first.args.linear;
  if (a.epilogue != kStore) return false;
  Span added, sum;
  a.via_element = a.out_element;
  if (next.op == Op::kNorm && next.args.norm.residual) {
    const NormArgs& n = next.args.norm;
    const Access access = access_of(next);
    if (!access.known) return false;
    added = access.reads[0];
    sum = access.reads[1];
    a.out = n.residual;
    a.out_stride = n.residual_stride;
    a.out_element = n.residual_element;
  } else if (next.op == Op::kPointwise && next.args.pointwise.kind == kAdd) {
    const PointwiseArgs& p = next.args.pointwise;
    added = access_of(next).reads[0];
    sum = access_of(next).written;
    a.out = p.out;
    a.out_stride = p.out_stride;
    a.out_element = p.out_element;
  } else {
    return false;
  }
  if (!is(added, out_of(first.args.linear)) || sum.meets(added) || sum.meets(access_of(first).reads[0])) return false;
  a.epilogue = kAddTo;
  joined = Step(a);
  return true;
}

// The norm of a residual that holds the sum already.
Step plain_norm(const NormArgs& with) {
  NormArgs a = with;
  a.x = with.residual;
  a.x_stride = with.residual_stride;
  a.x_element = with.residual_element;
  a.residual = nullptr;
  return Step(a);
}

}  // namespace

void fuse(std::vector<Step>& steps) {
  std::vector<Step> found;
  for (size_t i = 0; i < steps.size(); i++) {
    Step joined = steps[i];
    const bool pair = i + 1 < steps.size() && steps[i].per_token == steps[i + 1].per_token && steps[i].op == Op::kLinear &&
                      dead_after(steps, i + 1, out_of(steps[i].args.linear));
    if (!pair || !(gates(steps[i], steps[i + 1], joined) || adds(steps[i], steps[i + 1], joined))) {
      found.push_back(steps[i]);
      continue;
    }
    joined.per_token = steps[i].per_token;
    found.push_back(joined);
    i++;
    if (steps[i].op != Op::kNorm) continue;
    Step norm = plain_norm(steps[i].args.norm);
    norm.per_token = steps[i].per_token;
    found.push_back(norm);
  }
  steps.swap(found);
}

bool normalises_for(const Step& norm, const Step& linear) {
  if (norm.op != Op::kNorm || linear.op != Op::kLinear || norm.per_token != linear.per_token) return false;
  const Access first = access_of(norm), second = access_of(linear);
  // The linear's threads write the residual and the normed rows while others may already store products.
  return first.known && is(first.written, second.reads[0]) && !second.written.meets(first.reads[0]) &&
         !second.written.meets(first.reads[1]) && !second.written.meets(first.written);
}

}  // namespace tc
