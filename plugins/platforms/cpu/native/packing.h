// What the packers share. Knows no format.
#pragma once
#include "packed.h"

namespace tc {

// Memory for the panels of a weight whose shape is known; false if there is none.
bool place(Packed& w);
void release(Packed& w);
// Codes of a unit, one a byte, into the column of a unit of a panel whose memory is zero.
void put_codes(const Packed& w, uint8_t* unit, int column, const uint8_t* code);

}  // namespace tc
