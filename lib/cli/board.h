/* board: a validator's rounds and standings (web/board.h), asked for over its API. */
#pragma once

#include "api/client.h"
#include "web/board.h"

/* Asks for what the validator shows; `own`: the address of the own hotkey, or "". -1 when the standings cannot be had;
 * of the rest what comes is taken, and `problem` says what did not. Free with board_free, also after an error. */
int board_ask(struct api *api, const char *own, struct board *board, struct error *err);
