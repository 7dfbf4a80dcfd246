#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// "f32", "i64", …
const char* to_string(DataType type);
/// Throws UserError naming the nearest one.
DataType parse_data_type(const std::string& text);

/// How an operation is named in messages: "all_reduce of 3454464 f32".
std::string describe(const char* operation, ConstBuffer values);

/// Combines `sources` element by element in their order, whatever the block size or the number of
/// threads, and writes the result to every destination. All hold `count` elements; a destination
/// may be one of the sources. Integer sums wrap; averages divide a 64-bit sum.
void reduce_in_order(std::span<const void* const> sources, std::span<void* const> destinations,
                     std::size_t count, DataType type, Reduction reduction);

}  // namespace heteroperf
