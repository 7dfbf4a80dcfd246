#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/runners/comm/communicator_cases.hpp"

namespace heteroperf {
namespace {

void nobody_passes_a_barrier_early(World& world) {
  int entered = 0;
  std::optional<ServiceScope> service;
  if (world.communicator->rank() == RankId(0)) {
    service.emplace(*world.control, [&](RankId, std::string message, ControlChannel::Reply reply) {
      entered += message.starts_with('e');
      reply(std::to_string(entered));
    });
  }
  world.control->call("enter");
  world.communicator->barrier();
  EXPECT_EQ(world.control->call("look"), std::to_string(world.communicator->size()));
  world.communicator->barrier();
}

void replies_may_come_later(World& world) {
  const int ranks = world.communicator->size();
  std::vector<std::pair<RankId, ControlChannel::Reply>> waiting;
  std::optional<ServiceScope> service;
  if (world.communicator->rank() == RankId(0)) {
    service.emplace(*world.control, [&](RankId from, std::string, ControlChannel::Reply reply) {
      waiting.emplace_back(from, std::move(reply));
      if (static_cast<int>(waiting.size()) < ranks) return;
      for (auto& [rank, answer] : waiting) answer("for " + std::to_string(rank.value()));
      waiting.clear();
    });
  }
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(world.control->call("and me?"),
              "for " + std::to_string(world.communicator->rank().value()));
  }
  world.communicator->barrier();
}

void posts_keep_their_order(World& world) {
  constexpr int posts = 500;
  const int ranks = world.communicator->size();
  std::vector<std::vector<std::string>> heard(static_cast<std::size_t>(ranks));
  std::optional<ServiceScope> service;
  world.control->post("0");  // waits for the handler
  if (world.communicator->rank() == RankId(0)) {
    service.emplace(*world.control,
                    [&](RankId from, std::string message, ControlChannel::Reply reply) {
                      if (reply) return reply("heard");
                      heard[from.index()].push_back(std::move(message));
                    });
  }
  for (int i = 1; i < posts; ++i) {
    // A few messages that no socket buffer takes at once.
    std::string message = std::to_string(i);
    if (i % 100 == 0) message.resize(1000000, ' ');
    world.control->post(std::move(message));
  }
  EXPECT_EQ(world.control->call("done"), "heard");
  world.communicator->barrier();
  if (world.communicator->rank() != RankId(0)) return;
  service.reset();
  for (const auto& messages : heard) {
    ASSERT_EQ(messages.size(), static_cast<std::size_t>(posts));
    for (int i = 0; i < posts; ++i) {
      EXPECT_EQ(std::stoi(messages[static_cast<std::size_t>(i)]), i);
    }
  }
}

void a_forgotten_reply_is_an_error(World& world) {
  std::optional<ServiceScope> service;
  if (world.communicator->rank() == RankId(0)) {
    service.emplace(*world.control, [](RankId, std::string, ControlChannel::Reply) {});
  }
  EXPECT_THROW(world.control->call("hello?"), PeerError);
  world.communicator->barrier();
}

void everybody_hears_of_a_stop(World& world) {
  EXPECT_FALSE(world.control->stop_requested());
  world.communicator->barrier();
  const int last = world.communicator->size() - 1;
  if (world.communicator->rank() == RankId(last)) {
    world.control->request_stop("enough");
    world.control->request_stop("more than enough");
  }
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!world.control->stop_requested() && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(world.control->stop_requested(), "enough");
  EXPECT_FALSE(world.control->failure());
  world.communicator->barrier();
}

constexpr WorldCase cases[] = {
    {"nobody_passes_a_barrier_early", nobody_passes_a_barrier_early},
    {"replies_may_come_later", replies_may_come_later},
    {"posts_keep_their_order", posts_keep_their_order},
    {"a_forgotten_reply_is_an_error", a_forgotten_reply_is_an_error},
    // Last: a world that was asked to stop stays so.
    {"everybody_hears_of_a_stop", everybody_hears_of_a_stop},
};

}  // namespace

std::span<const WorldCase> world_cases() { return cases; }

void run_case(const WorldCase& one, World& world) {
  one.run(world);
  // So that the next case's messages do not reach this one's handler.
  world.communicator->barrier();
}

}  // namespace heteroperf
