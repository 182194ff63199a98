# SPDX-License-Identifier: MIT
# Completion of sbx for bash. The words come from the program itself, so that they are never out of date.
eval "$(sbx completion bash 2>/dev/null)"
