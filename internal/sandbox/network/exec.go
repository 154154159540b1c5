// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"
)

// executor executes plugins as libcni does, and removes from the configuration what libcni passes against the
// specification: capabilities, which only the runtime reads, and reserved keys (cni.dev/…).
type executor struct{ *invoke.DefaultExec }

func newExecutor(stderr io.Writer) executor {
	return executor{&invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: stderr}, PluginDecoder: version.PluginDecoder{}}}
}

// ExecPlugin executes one plugin.
func (e executor) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	stdin, err := withoutReserved(stdin, slices.Contains(environ, "CNI_COMMAND=GC"))
	if err != nil {
		return nil, err
	}
	return e.DefaultExec.ExecPlugin(ctx, path, stdin, environ)
}

// withoutReserved removes keys from a plugin's configuration that the plugin must not get.
func withoutReserved(stdin []byte, gc bool) ([]byte, error) {
	var conf map[string]json.RawMessage
	if json.Unmarshal(stdin, &conf) != nil || conf == nil {
		return stdin, nil // VERSION has no configuration; the plugin reports other errors
	}
	n := len(conf)
	for key := range conf {
		attachments := key == "cni.dev/valid-attachments" ||
			key == "cni.dev/attachments" // the second is from older versions of libcni
		if key == "capabilities" || strings.HasPrefix(key, "cni.dev/") && (!gc || !attachments) {
			delete(conf, key)
		}
	}
	if len(conf) == n {
		return stdin, nil
	}
	out, err := json.Marshal(conf)
	if err != nil {
		return nil, fmt.Errorf("plugin configuration: %w", err)
	}
	return out, nil
}
