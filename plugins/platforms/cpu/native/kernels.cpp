// All kernels of one ISA level. Compiled once per level with its own flags and TC_LEVEL.
//
// No template of the standard library is used here: a copy of one compiled for AVX-512 must not be picked by the linker
// for the whole library.
#include "kernels.h"

#include <math.h>

#include "bytes.h"
#include "simd.h"

namespace tc {
namespace TC_LEVEL {

#include "elementwise.inl"
#include "linear.inl"
#include "pointwise.inl"
#include "argmax.inl"
#include "moe.inl"
#include "experts.inl"
#include "kv.inl"
#include "attention_part.inl"
#include "attention_dot.inl"
#include "attention.inl"
#include "sample.inl"

#define TC_TEXT2(x) #x
#define TC_TEXT(x) TC_TEXT2(x)

extern const Kernels kKernels;
const Kernels kKernels = {
    TC_TEXT(TC_LEVEL), linear_scratch, linear,     normed_linear, rows,  embedding, norm, rotary,
    gated,             softcap,        layer_norm, pointwise, argmax,    route,     add_gated,
    experts_rows,      experts_scratch, experts_plan, experts_up, experts_down, attention_scratch, attention, sample_scratch, sample,
};

}  // namespace TC_LEVEL
}  // namespace tc
