// Arguments of `sample`: one SampleRow a request, fields of eight bytes each so that Python fills them as an array.
#pragma once
#include <cstdint>

namespace tc {

// What a row came to; kNothingLeft: its rules forbid every token.
enum SampleFault : int64_t { kSampled = 0, kNotANumber = 1, kInfinite = 2, kAllMinus = 3, kNothingLeft = 4 };

// Off: top_k 0, top_p >= 1, min_p 0. temperature 0: the most likely token. Ids are within the vocabulary; `allowed` is
// ascending. Rules change x in place and are undone before the row is done.
//
// best_count < 0: no log-probabilities. Else, of x without rules: `shift` = log of the sum of exp(x) where `normalize` is
// set (else 0), `value` = x[token] - shift, `rank`, and the most likely ids with their values, `best_found` of them.
struct SampleRow {
  float* x;
  double uniform, temperature, top_p, min_p;
  int64_t top_k;
  const uint32_t* mask;  // a bit for each token: those without it cannot be chosen; null: any can
  const int64_t* allowed;
  int64_t allowed_count;
  const int64_t* banned;
  int64_t banned_count;
  const int64_t* bias_ids;
  const float* bias;
  int64_t bias_count;
  const int64_t* seen;    // distinct
  const double* counts;   // how often each was generated
  int64_t seen_count;
  double repetition, presence, frequency;
  int64_t best_count, normalize;
  int64_t* best_ids;
  double* best_values;
  // results
  int64_t token, rank, best_found, fault;
  double value, shift;
};

struct SampleArgs {
  SampleRow* rows;
  int64_t count, vocab;
  int64_t edits;  // the most values that one row's rules change
  uint8_t* scratch;
  int64_t scratch_bytes;  // of a thread
};

}  // namespace tc
