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

// runner is libcni's way to execute plugins, inside the namespace that plays the node; it adds up what they cost.
type runner struct {
	version.PluginDecoder
	node *netns.NS
	// wrap is put in front of every plugin's command line (strace).
	wrap []string
	// volatile is where the plugin keeps what does not outlive the machine.
	volatile string

	mu  sync.Mutex
	cpu time.Duration
}

// ExecPlugin runs one plugin by the CNI protocol.
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
	if err == nil {
		return stdout.Bytes(), nil
	}
	var fault types.Error
	if json.Unmarshal(stdout.Bytes(), &fault) == nil && fault.Msg != "" {
		return nil, &fault
	}
	return nil, errors.Join(fmt.Errorf("plugin %s: %w: %s", path, err, stderr.String()), ctx.Err())
}

func (r *runner) account(cmd *exec.Cmd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// FindInPath finds a plugin as libcni does.
func (r *runner) FindInPath(plugin string, paths []string) (string, error) {
	path, err := invoke.FindInPath(plugin, paths)
	if err != nil {
		return "", fmt.Errorf("plugin %s: %w", plugin, err)
	}
	return path, nil
}

func (r *runner) spent() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cpu
}
