// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"

	bench "github.com/weft-net/weft/internal/bench/command"
	"github.com/weft-net/weft/internal/cli/ui"
	conformance "github.com/weft-net/weft/internal/conformance/command"
	controller "github.com/weft-net/weft/internal/controller/command"
	docker "github.com/weft-net/weft/internal/docker/command"
	"github.com/weft-net/weft/internal/endpoint/standalone"
	lab "github.com/weft-net/weft/internal/lab/command"
	agent "github.com/weft-net/weft/internal/node/agent/command"
	release "github.com/weft-net/weft/internal/release/command"
)

// program is a program with external commands, run in the test's process.
type program struct {
	run func(ctx context.Context, name string, env ui.Env) int
	new func(name string, env ui.Env) *cobra.Command
	// single is the command of weft that the whole program is.
	single string
}

// root returns the program's command tree as it runs.
func (p program) root(env ui.Env) *cobra.Command {
	root := p.new("weft", env)
	ui.Prepare(root, env)
	return root
}

func programs(t *testing.T) map[string]program {
	t.Helper()
	return map[string]program{
		"weft-agent": {
			run: func(ctx context.Context, name string, env ui.Env) int { return agent.Run(ctx, name, env) },
			new: func(name string, env ui.Env) *cobra.Command { return agent.New(name, env) },
		},
		"weft-bench":      {run: bench.Run, new: bench.New, single: "bench"},
		"weft-cluster":    {run: release.Run, new: release.New, single: "cluster"},
		"weft-controller": {run: controller.Run, new: controller.New, single: "controller"},
		"weft-docker":     {run: docker.Run, new: docker.New, single: "docker"},
		"weft-lab":        {run: lab.Run, new: lab.New},
		"cni-conformance": {run: conformance.Run, new: conformance.New, single: "conformance"},
	}
}

// run runs weft, and the program that it executes, in this process.
func run(t *testing.T, env Env) int {
	t.Helper()
	env.Self = "/opt/weft/weft"
	if env.Getenv == nil {
		env.Getenv = func(string) string { return "" }
	}
	env.Exec = func(path string, argv, _ []string) error {
		if filepath.Base(path) == pluginProgram {
			return ui.Exit(standalone.Main(t.Context(), standalone.Env{
				Argv0: argv[0], Args: argv[1:], Getenv: env.Getenv, Stdin: env.Stdin, Stdout: env.Stdout, Stderr: env.Stderr,
				Now:    time.Now,
				Notify: context.WithCancel,
			}))
		}
		p, ok := programs(t)[filepath.Base(path)]
		if !ok {
			t.Fatalf("%s is executed, with %q", path, argv)
		}
		its := env
		its.Self, its.Args = path, argv[1:]
		return ui.Exit(p.run(t.Context(), filepath.Base(argv[0]), its))
	}
	if code, external := ExecExternal(env); external {
		return code
	}
	return Run(t.Context(), env)
}
