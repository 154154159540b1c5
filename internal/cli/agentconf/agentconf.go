// SPDX-License-Identifier: Apache-2.0

// Package agentconf reads the agents' configuration for the programs that go by it, with flags set over the file.
package agentconf

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weft-net/weft/internal/cluster/config"
)

// GCPercent keeps the programs small that run all the time. A call leaves the agent about 200 KiB of garbage, so that
// with it the collector runs once in thirty calls.
const GCPercent = 200

// Complete reads the file, sets the flags over it that were given, and checks the whole.
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
