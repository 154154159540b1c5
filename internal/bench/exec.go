// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/weft-net/weft/internal/netns"
)

// runner implements libcni's invoke.Exec inside the node's namespace and accumulates the plugins' CPU time.
type runner struct {
	version.PluginDecoder
	node *netns.NS
	// wrap is prepended to the plugins' command lines (strace).
	wrap []string
	// volatile is the plugins' directory for state that does not survive a reboot.
	volatile string
	// program, which may be empty, is executed in the place of each plugin, and its result is that of none.
	program string

	mu  sync.Mutex
	cpu time.Duration
}

// ExecPlugin implements invoke.Exec.
func (r *runner) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	argv := append(append([]string{}, r.wrap...), path)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Env = append(slices.Clip(environ), "WEFT_JOURNAL_DIR="+r.volatile)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	if err := r.node.Do(cmd.Start); err != nil {
		return nil, fmt.Errorf("plugin %s: %w", path, err)
	}
	err := cmd.Wait()
	r.account(cmd)
	if err == nil && r.program != "" {
		return []byte(`{"cniVersion":"1.0.0"}`), nil
	}
	if err == nil {
		return stdout.Bytes(), nil
	}
	var cniErr types.Error
	if json.Unmarshal(stdout.Bytes(), &cniErr) == nil && cniErr.Msg != "" {
		return nil, &cniErr
	}
	return nil, errors.Join(fmt.Errorf("plugin %s: %w: %s", path, err, stderr.String()), ctx.Err())
}

func (r *runner) account(cmd *exec.Cmd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// FindInPath implements invoke.Exec.
func (r *runner) FindInPath(plugin string, paths []string) (string, error) {
	if r.program != "" {
		return r.program, nil
	}
	path, err := invoke.FindInPath(plugin, paths)
	if err != nil {
		return "", fmt.Errorf("plugin %s: %w", plugin, err)
	}
	return path, nil
}

func (r *runner) cpuTime() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cpu
}
