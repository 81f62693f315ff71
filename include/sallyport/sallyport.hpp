#pragma once

/// Everything a program needs: `#include <sallyport/sallyport.hpp>`.
#include <sallyport/capabilities.hpp>
#include <sallyport/client.hpp>
#include <sallyport/election.hpp>
#include <sallyport/error.hpp>
#include <sallyport/fence.hpp>
#include <sallyport/fence_etcd.hpp>
#include <sallyport/fence_redis.hpp>
#include <sallyport/fence_sql.hpp>
#include <sallyport/inspect.hpp>
#include <sallyport/lease.hpp>
#include <sallyport/lock_all.hpp>
#include <sallyport/mutex.hpp>
#include <sallyport/observer.hpp>
#include <sallyport/optimistic.hpp>
#include <sallyport/options.hpp>
#include <sallyport/recursive_mutex.hpp>
#include <sallyport/semaphore.hpp>
#include <sallyport/shared_mutex.hpp>
#include <sallyport/sql.hpp>
#include <sallyport/store_entry.hpp>
#include <sallyport/types.hpp>
#include <sallyport/with_lock.hpp>
