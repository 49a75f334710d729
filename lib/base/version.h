#pragma once

#define QUASAR_VERSION "0.1.0"
