// SPDX-License-Identifier: Apache-2.0

//go:build weftsteps

package command

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/failpoint"
)

// pluginTime shortens the limit of a hanging plugin for tests.
func pluginTime(env ui.Env) time.Duration {
	d, _ := time.ParseDuration(env.Getenv("WEFT_PLUGIN_TIME")) // 0: the default
	return d
}

// agentFailpoint returns the agent's failpoint for tests: the file WEFT_STEP_FILE contains a number that is decremented at
// every failpoint; at zero the file is deleted and the process killed.
func agentFailpoint(env ui.Env) failpoint.Hook {
	file := env.Getenv("WEFT_STEP_FILE")
	if file == "" {
		return nil
	}
	var mu sync.Mutex
	return func(name string) error {
		mu.Lock()
		defer mu.Unlock()
		b, err := os.ReadFile(file)
		if err != nil {
			return nil
		}
		left, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			return nil
		}
		if left > 0 {
			return os.WriteFile(file, []byte(strconv.Itoa(left-1)), 0o600)
		}
		_ = os.Remove(file)
		fmt.Fprintln(env.Stderr, "killed at failpoint:", name)
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}
