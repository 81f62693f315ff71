#include "tests/contract/kit/contract_test.hpp"

#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>

// Promise 10: "somebody else has it" is a value; an error is never reported as that, nor that as an
// error.
namespace sallyport::contract {
namespace {

class HeldIsNotBroken : public contract_test {};

TEST_F(HeldIsNotBroken, BusyIsAnEmptyOptionalWithoutAnError) {
  mutex gate{open("holder"), "door", lasting()};
  mutex wanted{open("asker"), "door", lasting()};
  const auto held = gate.acquire();

  std::error_code error = make_error_code(errc::unavailable);
  EXPECT_FALSE(wanted.try_acquire(error));
  EXPECT_FALSE(error);

  error = make_error_code(errc::unavailable);
  EXPECT_FALSE(wanted.try_acquire_for(10ms, {}, error));
  EXPECT_FALSE(error);

  EXPECT_EQ(error_of([&] { EXPECT_FALSE(wanted.try_acquire()); }), std::error_code{});
}

TEST_F(HeldIsNotBroken, SuccessClearsTheErrorOfTheTwin) {
  mutex lock{open(), "door", lasting()};
  std::error_code error = make_error_code(errc::unavailable);

  const auto held = lock.acquire(error);

  EXPECT_TRUE(held);
  EXPECT_FALSE(error);
}

TEST_F(HeldIsNotBroken, AStoreOutOfReachIsAnErrorNeverHeld) {
  if (!store().unreachable_address) {
    mutex reachable{open(), "door", lasting()};
    EXPECT_TRUE(reachable.try_acquire());
    return;
  }
  client_options impatient;
  impatient.request_timeout = 300ms;
  impatient.store_patience = 600ms;
  const auto client = client::open(*store().unreachable_address, impatient);
  mutex lock{client, "door", lasting()};

  EXPECT_EQ(error_of([&] { (void)lock.try_acquire(); }), errc::unavailable);
  EXPECT_EQ(error_of([&] { (void)lock.acquire(); }), errc::unavailable);
  EXPECT_EQ(error_of([&] { (void)lock.try_acquire_for(patience); }), errc::unavailable);
  EXPECT_EQ(error_of([&] { (void)client.who("door"); }), errc::unavailable);
}

TEST_F(HeldIsNotBroken, ATwinsErrorHasASentenceAsWhatTheOtherThrows) {
  const std::string address = store().unreachable_address.value_or(this->address());
  client_options impatient;
  impatient.request_timeout = 300ms;
  impatient.store_patience = 300ms;
  mutex lock{client::open(address, impatient), "door", lasting()};
  std::error_code error;
  EXPECT_EQ(lock.try_acquire(error).has_value(), !store().unreachable_address);
  if (!error) return;

  const lock_error twin = to_lock_error(error);

  EXPECT_EQ(twin.code(), error);
  const auto has_sentence = [&](const lock_error& why) {
    return std::string_view(why.what()).size() > error.message().size() + 10;
  };
  EXPECT_TRUE(has_sentence(twin)) << twin.what();
  try {
    static_cast<void>(lock.try_acquire());
    ADD_FAILURE() << "nothing was thrown";
  } catch (const lock_error& thrown) {
    EXPECT_TRUE(has_sentence(thrown)) << thrown.what();
  }
  // Of a code that no call has reported there is only the code's own.
  const lock_error other = to_lock_error(make_error_code(errc::too_many_waiters));
  EXPECT_EQ(other.what(), "sallyport: " + make_error_code(errc::too_many_waiters).message());
}

TEST_F(HeldIsNotBroken, AStoreOutOfReachIsWaitedForByCallsThatWait) {
  if (!store().unreachable_address) {
    mutex reachable{open(), "door", lasting()};
    EXPECT_TRUE(reachable.try_acquire_for(patience));
    return;
  }
  client_options patient;
  patient.store_patience = 1500ms;
  const auto client = client::open(*store().unreachable_address, patient);
  mutex lock{client, "door", lasting()};

  // The very first connection fails, and the wait goes on.
  auto began = lease_clock::now();
  EXPECT_EQ(error_of([&] { (void)lock.acquire(); }), errc::unavailable);
  EXPECT_GE(lease_clock::now() - began, 1500ms);
  began = lease_clock::now();
  const std::error_code error = error_of([&] { (void)lock.try_acquire_for(700ms); });
  EXPECT_TRUE(error == errc::unavailable || error == errc::outcome_unknown) << error;
  EXPECT_GE(lease_clock::now() - began, 700ms);
}

TEST_F(HeldIsNotBroken, AddressesThatNobodyServesAreRefusedAtOpen) {
  EXPECT_EQ(error_of([] { client::open("nosuchstore://127.0.0.1"); }), errc::unknown_scheme);
  EXPECT_EQ(error_of([] { client::open("no address at all"); }), errc::bad_uri);
}

TEST_F(HeldIsNotBroken, OptionsThatMakeNoSenseAreRefused) {
  const auto client = open();

  EXPECT_EQ(error_of([&] { mutex{client, "door", {.local_turns = 0}}; }), errc::bad_option);
  EXPECT_EQ(error_of([&] { mutex{client, "door", {.local_turn_time = -1ms}}; }), errc::bad_option);
  client_options options;
  options.heartbeat = 0ms;
  EXPECT_EQ(error_of([&] { (void)open("bad", options); }), errc::bad_option);
  options = {};
  options.request_timeout = 0ms;
  EXPECT_EQ(error_of([&] { (void)open("bad", options); }), errc::bad_option);
  options = {};
  options.clock_drift = 1.0;
  EXPECT_EQ(error_of([&] { (void)open("bad", options); }), errc::bad_option);
  options = {};
  options.clock_drift = -0.1;
  EXPECT_EQ(error_of([&] { (void)open("bad", options); }), errc::bad_option);
}

TEST_F(HeldIsNotBroken, OneWaiterTooManyIsToldSo) {
  client_options small;
  small.max_waiters_per_name = 1;
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  mutex wanted{open("small", small), "door", lasting()};
  const auto held = gate.acquire();
  std::stop_source stop;
  background waiter([&] { return wanted.acquire(stop.get_token()).has_value(); });
  ASSERT_TRUE(waiters_become(watching, "door", 1));

  EXPECT_EQ(error_of([&] { (void)wanted.acquire(); }), errc::too_many_waiters);
  // Who does not wait is not one too many: it is told "held", as ever.
  std::error_code error;
  EXPECT_FALSE(wanted.try_acquire(error));
  EXPECT_FALSE(error) << error.message();

  stop.request_stop();
  EXPECT_FALSE(waiter.get());
}

TEST_F(HeldIsNotBroken, EveryErrorHasASentence) {
  for (int value = 1; value <= static_cast<int>(errc::forked); ++value) {
    const std::error_code code = make_error_code(static_cast<errc>(value));
    EXPECT_EQ(&code.category(), &lock_category());
    EXPECT_GT(code.message().size(), 5U) << value;
  }
}

}  // namespace
}  // namespace sallyport::contract
