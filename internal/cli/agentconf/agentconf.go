// SPDX-License-Identifier: Apache-2.0

// Package agentconf loads the agent's configuration. Flags override the file.
package agentconf

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weft-net/weft/internal/cluster/config"
)

// GCPercent bounds the heap of long-running programs. A CNI call leaves about 200 KiB of garbage in the agent, so the
// collector runs once in thirty calls.
const GCPercent = 200

// Complete loads the file, applies the flags that the command line sets, takes the node's name from NODE_NAME or the
// host name if it is missing, and validates the result.
func Complete(c *config.Config, file string, getenv func(string) string, flags *pflag.FlagSet) error {
	if file != "" {
		given := map[string]string{}
		flags.Visit(func(f *pflag.Flag) { given[f.Name] = f.Value.String() })
		var err error
		if *c, err = config.Load(file); err != nil {
			return err
		}
		for name, value := range given {
			if err := flags.Set(name, value); err != nil {
				return err
			}
		}
	}
	if c.Node == "" {
		c.Node = getenv("NODE_NAME")
	}
	if c.Node == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("host name: %w", err)
		}
		c.Node = strings.ToLower(name) // as the kubelet does
	}
	return c.Check()
}
