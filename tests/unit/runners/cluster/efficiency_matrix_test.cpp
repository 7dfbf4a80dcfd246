#include "runners/cluster/efficiency_matrix.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

using Key = EfficiencyMatrix::OperationKey;

EfficiencyMatrix::Rate rate_of(double value, Provenance provenance,
                               const std::string& source = "") {
  return {OpsPerSecond(value), {provenance, source}};
}

EfficiencyMatrix small_matrix() {
  EfficiencyMatrix matrix;
  matrix.add(Key{"a", "gemm", "10x10x10", "fp32"}, rate_of(100, Provenance::probe, "measured"));
  matrix.add(Key{"a", "gemm", "100x100x100", "fp32"}, rate_of(400, Provenance::file));
  matrix.add(Key{"a", "", "", "fp32"}, rate_of(50, Provenance::file, "sheet"));
  matrix.add(Key{"b", "attention", "", "bf16"}, rate_of(30, Provenance::file));
  matrix.add({"a", DeviceQuantity::launch_s}, {0.5, {Provenance::probe, ""}});
  matrix.add({"b", DeviceQuantity::memory_bytes_per_s}, {10, {Provenance::file, "sheet"}});
  matrix.add({"b", DeviceQuantity::price_per_hour}, {0, {Provenance::file, ""}});
  matrix.add(LinkScope::zones, "y", "x",
             {LinkCurve(Seconds(1e-5), BytesPerSecond(1e9)), {Provenance::probe, "measured"}});
  matrix.add(LinkScope::classes, "a", "b",
             {LinkCurve({{Bytes(8), Seconds(1e-6)}, {Bytes(800), Seconds(3e-6)}}), {}});
  return matrix;
}

TEST(EfficiencyMatrix, AMergeTakesTheBetterProvenanceThenTheLater) {
  const Provenance kinds[] = {Provenance::analytic, Provenance::file, Provenance::probe};
  const Key key{"a", "gemm", "", "fp32"};
  for (const Provenance first : kinds) {
    for (const Provenance second : kinds) {
      EfficiencyMatrix one, two;
      one.add(key, rate_of(1, first));
      two.add(key, rate_of(2, second));
      one.add({"a", DeviceQuantity::busy_watts}, {1, {first, ""}});
      two.add({"a", DeviceQuantity::busy_watts}, {2, {second, ""}});
      one.merge(two);
      const double expected = second >= first ? 2 : 1;
      EXPECT_EQ(one.rates().at(key).rate.value(), expected);
      EXPECT_EQ(one.value("a", DeviceQuantity::busy_watts), expected);
    }
  }
  EfficiencyMatrix all = small_matrix();
  all.merge(small_matrix());
  EXPECT_EQ(all, small_matrix());
  EfficiencyMatrix from_none;
  from_none.merge(small_matrix());
  EXPECT_EQ(from_none, small_matrix());
}

TEST(EfficiencyMatrix, RefusesWhatCannotBe) {
  EfficiencyMatrix matrix;
  const double infinite = std::numeric_limits<double>::infinity();
  for (const double rate : {0.0, -1.0, infinite, std::nan("")}) {
    EXPECT_THROW(matrix.add(Key{"a", "gemm", "", "fp32"}, rate_of(rate, Provenance::file)),
                 UserError);
    EXPECT_THROW(matrix.add({"a", DeviceQuantity::memory_bytes}, {rate, {}}), UserError);
  }
  for (const char* shape : {"x", "4x", "4xx4", "4,4", "0x4", "-1", "4 x4"}) {
    EXPECT_THROW(matrix.add(Key{"a", "gemm", shape, "fp32"}, rate_of(1, Provenance::file)),
                 UserError)
        << shape;
  }
  EXPECT_THROW(matrix.add({"a", DeviceQuantity::launch_s}, {-1, {}}), UserError);
  EXPECT_THROW(
      matrix.add(LinkScope::zones, "a", "", {LinkCurve(Seconds(0), BytesPerSecond(1)), {}}),
      UserError);
  EXPECT_THROW(matrix.add(LinkScope::zones, "a", "b", {}), UserError);
  EXPECT_EQ(matrix, EfficiencyMatrix());
}

TEST(EfficiencyMatrix, LinksHaveNoDirection) {
  const EfficiencyMatrix matrix = small_matrix();
  ASSERT_NE(matrix.link(LinkScope::zones, "x", "y"), nullptr);
  EXPECT_EQ(matrix.link(LinkScope::zones, "x", "y"), matrix.link(LinkScope::zones, "y", "x"));
  EXPECT_EQ(matrix.link(LinkScope::classes, "x", "y"), nullptr);
}

TEST(EfficiencyMatrixFile, RoundTrips) {
  EXPECT_EQ(parse_efficiency_matrix(efficiency_matrix_text({}), "f"), EfficiencyMatrix());
  EXPECT_EQ(parse_efficiency_matrix(efficiency_matrix_text(small_matrix()), "f"), small_matrix());
  RandomStream random(3);
  EfficiencyMatrix matrix;
  for (int i = 0; i < 50; ++i) {
    const Key key{"c" + std::to_string(random.below(3)), random.below(2) == 0 ? "gemm" : "",
                  std::to_string(1 + random.below(9)) + "x7", "bf16"};
    matrix.add(key,
               rate_of(random.unit() * 1e15 + 1, static_cast<Provenance>(random.below(3)), "s"));
    matrix.add({key.device_class, static_cast<DeviceQuantity>(random.below(6))},
               {random.unit() + 0.1, {Provenance::probe, "\"quoted\""}});
  }
  EXPECT_EQ(parse_efficiency_matrix(efficiency_matrix_text(matrix), "f"), matrix);
}

TEST(EfficiencyMatrixFile, AllProblemsComeAtOnce) {
  const std::string text = R"({"_format":"heteroperf-efficiency","_version":1,
    "operations":[{"class":"a","precision":"fp32","ops_per_second":-1},
                  {"class":"a","precision":"fp32","ops_per_second":1,"shape":"3by3"},
                  {"class":"b","precision":"fp32","ops_per_second":1},
                  {"class":"b","precision":"fp32","ops_per_second":2},
                  {"class":"b","ops_per_second":2,"provenance":"guess"}],
    "devices":[{"class":"z","quantity":"memory","value":1},
               {"class":"a","quantity":"memory_bytes","value":0}],
    "links":[{"scope":"zones","between":["x","y"],"points":[{"bytes":1,"time_s":1}]},
             {"scope":"zones","between":["y","x"],"points":[{"bytes":1,"time_s":2}]},
             {"scope":"zones","between":["x"],"points":[{"bytes":1,"time_s":1}]},
             {"scope":"zones","between":["x","z"],"points":[{"bytes":1,"time_s":-1}]}]})";
  std::string message;
  try {
    parse_efficiency_matrix(text, "matrix.json");
  } catch (const UserError& error) {
    message = error.what();
  }
  for (const char* words :
       {"operations[0]: a any operation any shape fp32 is -1", "operations[1]: the shape",
        "operations[3] is there twice", "operations[4]", "guess", "devices[0].quantity",
        "devices[1]: memory_bytes of a is 0", "links[1]: the link of y and x", "links[2].between",
        "links[3]: a link takes -1"}) {
    EXPECT_NE(message.find(words), std::string::npos) << words << "\nnot in: " << message;
  }
  EXPECT_THROW(parse_efficiency_matrix("{}", "f"), UserError);
  EXPECT_THROW(read_efficiency_matrix("/nowhere/matrix.json"), UserError);
}

Cluster two_classes() {
  Cluster cluster;
  cluster.name = "two";
  for (const char* name : {"a", "b"}) {
    DeviceClass& one = cluster.classes.emplace_back();
    one.name = name;
    one.memory = Bytes(1000);
    one.rates["fp32"] = OpsPerSecond(5);
    cluster.ranks.push_back({name, "", "here", {}});
  }
  cluster.efficiency = {{"a", "gemm", "4x4x4", "fp32", OpsPerSecond(7), "measured today"},
                        {"a", "memory", "", "", OpsPerSecond(9), "given"},
                        {"a", "launch", "", "fp32", OpsPerSecond(4), "given"},
                        {"b", "gemm", "wide", "fp32", OpsPerSecond(3), "given"}};
  cluster.links = {
      {"here", "here", std::nullopt, LinkCurve(Seconds(1), BytesPerSecond(1)), "given"}};
  return cluster;
}

TEST(EfficiencyMatrix, TakesOverWhatAClusterSays) {
  const EfficiencyMatrix matrix = matrix_of(two_classes());
  EXPECT_EQ(matrix.rates().at({"a", "gemm", "4x4x4", "fp32"}).origin,
            (Origin{Provenance::probe, "measured today"}));
  EXPECT_EQ(matrix.rates().at({"b", "", "", "fp32"}).rate, OpsPerSecond(5));
  EXPECT_EQ(matrix.value("a", DeviceQuantity::memory_bytes_per_s), 9);
  EXPECT_EQ(matrix.value("a", DeviceQuantity::launch_s), 0.25);
  EXPECT_EQ(matrix.value("b", DeviceQuantity::memory_bytes), 1000);
  EXPECT_NE(matrix.link(LinkScope::zones, "here", "here"), nullptr);
}

TEST(EfficiencyMatrix, WhatAClusterSaysOfProvenanceHolds) {
  Cluster cluster = two_classes();
  EfficiencyMatrix matrix;
  matrix.add(Key{"a", "gemm", "4x4x4", "fp32"}, rate_of(70, Provenance::probe, "learned from r"));
  matrix.add(Key{"b", "gemm", "", "fp32"}, rate_of(60, Provenance::analytic, "measured, they say"));
  apply(matrix, cluster);
  const EfficiencyMatrix again = matrix_of(cluster);
  EXPECT_EQ(again.rates().at({"a", "gemm", "4x4x4", "fp32"}).origin,
            (Origin{Provenance::probe, "learned from r"}));
  EXPECT_EQ(again.rates().at({"b", "gemm", "", "fp32"}).origin,
            (Origin{Provenance::analytic, "measured, they say"}));
}

TEST(EfficiencyMatrix, GivesAClusterItsRates) {
  Cluster cluster = two_classes();
  EfficiencyMatrix matrix;
  matrix.add(Key{"a", "gemm", "4x4x4", "fp32"}, rate_of(70, Provenance::probe, "measured now"));
  matrix.add(Key{"b", "", "", "bf16"}, rate_of(6, Provenance::file));
  matrix.add(Key{"unknown", "gemm", "", "fp32"}, rate_of(6, Provenance::file));
  matrix.add({"b", DeviceQuantity::memory_bytes_per_s}, {11, {Provenance::file, "sheet"}});
  matrix.add({"b", DeviceQuantity::launch_s}, {0.5, {Provenance::file, "sheet"}});
  apply(matrix, cluster);
  EXPECT_EQ(cluster.classes[1].rates.at("bf16"), OpsPerSecond(6));
  EXPECT_EQ(cluster.classes[1].rates.at("fp32"), OpsPerSecond(5));
  ASSERT_EQ(cluster.efficiency.size(), 6u);
  EXPECT_EQ(cluster.efficiency[3], (Efficiency{"a", "gemm", "4x4x4", "fp32", OpsPerSecond(70),
                                               "measured now", Provenance::probe}));
  EXPECT_EQ(cluster.efficiency[4],
            (Efficiency{"b", "memory", "", "", OpsPerSecond(11), "sheet", Provenance::file}));
  EXPECT_EQ(cluster.efficiency[5],
            (Efficiency{"b", "launch", "", "", OpsPerSecond(2), "sheet", Provenance::file}));
  EXPECT_NO_THROW(check_cluster(cluster));
}

}  // namespace
}  // namespace heteroperf
