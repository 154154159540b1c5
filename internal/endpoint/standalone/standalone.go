// SPDX-License-Identifier: Apache-2.0

// Package standalone implements CNI plugins without an agent: the program weft-plugin acts as the plugin under whose
// name it is executed. It replaces the reference plugins: same configuration, same results, same host-local files.
package standalone

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/dhcp"
	"github.com/weft-net/weft/internal/ipam/hostlocal"
	"github.com/weft-net/weft/internal/ipam/static"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// program is the program's own name, which is no plugin.
const program = "weft-plugin"

// maxStdin bounds the configuration, in bytes; package cni rejects longer ones.
const maxStdin = 1<<20 + 1

// Env is the process environment, passed by main.
type Env struct {
	Argv0   string
	Args    []string // without the program's name
	Getenv  func(string) string
	Environ []string // what foreign IPAM plugins inherit
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Now     func() time.Time
	Version string
	// Notify cancels the context on SIGINT or SIGTERM, for the daemon; a call catches no signal.
	Notify func(context.Context) (context.Context, context.CancelFunc)
	// Root is the directory with the node's /sys and /etc; "" is "/".
	Root string
	// Failpoint is for fault tests; see attach.Config.
	Failpoint failpoint.Hook
}

// Main runs one call and returns the exit code.
func Main(ctx context.Context, env Env) int {
	name := filepath.Base(env.Argv0)
	planners, allocators := plugin.Builtin(), builtinAllocators(logger(env, name))
	if planners[name] == nil && allocators[name] == nil {
		return usage(env, types(planners, allocators))
	}
	if name == dhcp.Type && len(env.Args) > 0 && env.Args[0] == "daemon" {
		return daemon(ctx, env)
	}
	if env.Getenv("CNI_COMMAND") == "" {
		fmt.Fprintf(env.Stderr, "CNI %s plugin of weft %s\nCNI protocol versions supported: %s\n",
			name, env.Version, strings.Join(cni.Versions(), ", "))
		return 0
	}
	stdin, err := io.ReadAll(io.LimitReader(env.Stdin, maxStdin))
	if err != nil {
		return fail(env, "", model.Errorf(model.CodeIO, "", "standard input: %w", err))
	}
	call, err := cni.ParseCall(env.Getenv, stdin)
	var out []byte
	switch {
	// A valid environment with an invalid configuration: a DEL does what it can.
	case planners[name] != nil &&
		(err == nil && call.Command != cni.Version || call.Command == cni.Del && call.Conf != nil):
		out, err = interfacePlugin{env: env, typ: name, planners: planners, allocators: allocators}.do(ctx, call, err)
	case err != nil:
	case call.Command == cni.Version:
		out = cni.VersionReply()
	default:
		out, err = ipamPlugin{allocators[name]}.do(ctx, call)
	}
	if err != nil {
		return fail(env, call.Request.CNIVersion, err)
	}
	if _, err := env.Stdout.Write(out); err != nil {
		fmt.Fprintf(env.Stderr, "weft: result: %v\n", err)
		return 1
	}
	return 0
}

func builtinAllocators(log *slog.Logger) map[string]ipam.Allocator {
	table := map[string]ipam.Allocator{}
	for _, a := range []ipam.Allocator{hostlocal.New(hostlocal.Config{}), static.New(), dhcp.New(log)} {
		table[a.Type()] = a
	}
	return table
}

func types(planners map[string]plugin.Planner, allocators map[string]ipam.Allocator) []string {
	return slices.Sorted(maps.Keys(mergeKeys(planners, allocators)))
}

func mergeKeys(planners map[string]plugin.Planner, allocators map[string]ipam.Allocator) map[string]bool {
	all := map[string]bool{}
	for t := range planners {
		all[t] = true
	}
	for t := range allocators {
		all[t] = true
	}
	return all
}

// fail prints the protocol's error object.
func fail(env Env, cniVersion string, err error) int {
	if _, werr := env.Stdout.Write(cni.FormatError(err, cniVersion)); werr != nil {
		fmt.Fprintf(env.Stderr, "weft: %v\n", err)
	}
	return 1
}

// usage handles an execution under the program's own name.
func usage(env Env, types []string) int {
	if len(env.Args) == 1 {
		switch arg := env.Args[0]; {
		case arg == "--list":
			fmt.Fprintln(env.Stdout, strings.Join(types, "\n"))
			return 0
		case arg == "--version":
			fmt.Fprintln(env.Stdout, program, env.Version)
			return 0
		case slices.Contains(types, arg):
			fmt.Fprintf(env.Stderr, "weft: %s is selected by the name of the program\nhint: ln -s %s /opt/cni/bin/%s\n", arg,
				program, arg)
			return 2
		}
	}
	if env.Getenv("CNI_COMMAND") != "" {
		return fail(env, "", model.Errorf(model.CodeInvalidConf, "link it to one of "+strings.Join(types, ", "),
			"plugin %q is not built in", filepath.Base(env.Argv0)))
	}
	fmt.Fprintf(env.Stderr, `%s acts as the CNI plugin under whose name it is executed.
  %s --list    list the built-in plugins, one per line
`, program, program)
	if len(env.Args) == 0 {
		return 0
	}
	return 2
}

// logger writes to standard error.
func logger(env Env, typ string) *slog.Logger {
	drop := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	h := slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: drop})
	return slog.New(h).With("plugin", typ)
}
