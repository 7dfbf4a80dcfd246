#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "metrics/base/name_table.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// Throws UserError that names the nearest type when `text` is none.
DataType parse_data_type(const std::string& text);

/// Describes an operation for messages: "all_reduce of 3454464 f32".
std::string describe(const char* operation, ConstBuffer values);

/// Combines `sources` element by element in their order, whatever the block size or the number of
/// threads, and writes the result to every destination. All hold `count` elements; a destination
/// may be one of the sources. Integer sums wrap; averages divide a 64-bit sum. Halves are summed in
/// float32 and rounded once.
void reduce_in_order(std::span<const void* const> sources, std::span<void* const> destinations,
                     std::size_t count, DataType type, Reduction reduction);

}  // namespace heteroperf
