// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// multus finds keys of Multus without effect, and settings of its log by which nothing is logged.
func (l *linter) multus(where string, p model.PluginConf) {
	var c struct {
		Kubeconfig  *string `json:"kubeconfig"`
		Level       *string `json:"logLevel"`
		File        *string `json:"logFile"`
		Socket      *string `json:"daemonSocketDir"`
		RetryDelete *bool   `json:"retryDeleteOnError"`
	}
	if err := json.Unmarshal(p.Raw, &c); err != nil {
		return // the settings' parser reports it, or the log's at the first call
	}
	if c.Kubeconfig != nil {
		l.add(where, "kubeconfig", "remove it; the agent's own is kubernetes.kubeconfig of its configuration",
			"kubeconfig has no effect: the agent reads the cluster with its own credentials")
	}
	if c.Socket != nil {
		l.add(where, "daemonSocketDir", `remove it; "socket" is the path of the agent's socket`,
			"daemonSocketDir has no effect: there is no daemon of Multus")
	}
	if c.RetryDelete != nil && !*c.RetryDelete {
		l.add(where, "retryDeleteOnError", "remove it",
			"retryDeleteOnError has no effect: a DEL that fails is always an error, and its state is kept for the next one")
	}
	levels := []string{"panic", "error", "verbose", "debug"}
	switch known := c.Level == nil || slices.Contains(levels, strings.ToLower(*c.Level)); {
	case !known:
		l.add(where, "logLevel", "use one of "+strings.Join(levels, ", "), "logLevel %q is unknown: nothing is logged", *c.Level)
	case c.File != nil && (c.Level == nil || strings.EqualFold(*c.Level, "panic")):
		l.add(where, "logFile", `set "logLevel" to error, verbose or debug`,
			"logFile has no effect with the level panic, the default: no call is logged")
	}
	if c.File != nil && !strings.HasPrefix(*c.File, "/") {
		l.add(where, "logFile", "write the whole path", "logFile %q is not absolute: it is not written", *c.File)
	}
}
