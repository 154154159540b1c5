// SPDX-License-Identifier: Apache-2.0

// Package complete completes the names of nodes, pods, pools and VMs, and the values of flags, for shells.
package complete

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// limit is how long a shell waits for names. An API server that does not answer must not block the command line.
const limit = 2 * time.Second

// List lists names. A shell shows no errors: then there are no names.
type List func(context.Context) ([]string, error)

// Args completes each argument with the names of its list; nil has none. Flags are set when a list is called.
func Args(lists ...List) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(lists) || lists[len(args)] == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(cmd.Context(), lists[len(args)], nil, word, limit), cobra.ShellCompDirectiveNoFileComp
	}
}

// Words lists fixed names.
func Words(words ...string) List {
	return func(context.Context) ([]string, error) { return words, nil }
}

// Every completes any number of arguments with names of one list, each once.
func Every(list List) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return names(cmd.Context(), list, args, word, limit), cobra.ShellCompDirectiveNoFileComp
	}
}

// names returns the names that begin with a word, without those that are there, within a time. A list that ignores its
// context is not waited for.
func names(ctx context.Context, list List, have []string, word string, limit time.Duration) []string {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer := make(chan []string, 1)
	go func() {
		all, err := list(ctx)
		if err != nil {
			all = nil
		}
		answer <- all
	}()
	var out []string
	select {
	case <-ctx.Done():
		return nil
	case all := <-answer:
		for _, name := range all {
			if strings.HasPrefix(name, word) && !slices.Contains(have, name) {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Flag completes a flag of a command with names.
func Flag(cmd *cobra.Command, flag string, list List) {
	_ = cmd.RegisterFlagCompletionFunc(flag, value(Args(list)))
}

// value completes a value, whatever the arguments are.
func value(f cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return f(cmd, nil, word)
	}
}

// Values completes the flags of a command and those below it whose values are a few words, such as -o.
func Values(cmd *cobra.Command) {
	add := func(f *pflag.Flag) {
		known, is := f.Value.(interface{ Values() []string })
		if !is {
			return
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, // an error is that it has one
			func(_ *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
				var out []string
				directive := cobra.ShellCompDirectiveNoFileComp
				for _, v := range known.Values() {
					if strings.HasPrefix(v, word) {
						out = append(out, v)
					}
				}
				if len(out) == 1 && strings.HasSuffix(out[0], "=") {
					directive |= cobra.ShellCompDirectiveNoSpace
				}
				return out, directive
			})
	}
	cmd.LocalFlags().VisitAll(add)
	cmd.PersistentFlags().VisitAll(add)
	for _, c := range cmd.Commands() {
		Values(c)
	}
}
