#pragma once

#include "backends/sql/test_live_store.hpp"
#include "tests/kit/postgres_server.hpp"

/// What the live tests of this backend have besides.
namespace sallyport::postgres_live {

using namespace sql_live;
using kit::postgres_probe;
using kit::postgres_server;

}  // namespace sallyport::postgres_live
