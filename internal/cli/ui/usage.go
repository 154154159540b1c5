// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
)

// strict marks usage errors of cmd and all commands below it: cobra has no type for them, and for an unknown command of a
// group it prints help and exits with 0.
func strict(cmd *cobra.Command) {
	if cmd.HasSubCommands() {
		strictGroup(cmd)
	}
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if check != nil {
			if err := check(cmd, args); err != nil {
				return argsError(cmd, args, err)
			}
		}
		return requiredError(cmd)
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		// pflag prints an empty list as a default, except of the types of which it knows "[]", and only that, to be none.
		known := []string{"stringSlice", "stringArray", "intSlice"}
		if f.DefValue == "[]" && !slices.Contains(known, f.Value.Type()) {
			f.DefValue = ""
		}
	})
	for _, c := range cmd.Commands() {
		strict(c)
	}
}

// strictGroup rejects an unknown command of the group and, if the group is not runnable, a missing one.
func strictGroup(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		return nil
	}
	if cmd.Runnable() {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cmd.SetOut(cmd.ErrOrStderr()) // it is not a result
		if err := cmd.Help(); err != nil {
			return err
		}
		return Exit(Misuse)
	}
}

// unknownCommand suggests the nearest command of the group, or one of that name in another group.
func unknownCommand(group *cobra.Command, word string) error {
	hint := fmt.Sprintf("`%s --help` lists the commands", group.CommandPath())
	var names []string
	for _, c := range group.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if near := cni.Nearest(word, names); near != "" {
		hint = fmt.Sprintf("did you mean `%s %s`?", group.CommandPath(), near)
	} else if there := findByName(group.Root(), word); len(there) > 0 {
		hint = fmt.Sprintf("did you mean `%s`?", strings.Join(there, "` or `"))
	}
	return model.Errorf(model.CodeInvalidConf, hint, "unknown command %q for %q", word, group.CommandPath())
}

// findByName returns the paths of all commands of that name.
func findByName(cmd *cobra.Command, name string) []string {
	var out []string
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		if c.Name() == name {
			out = append(out, c.CommandPath())
		}
		out = append(out, findByName(c, name)...)
	}
	return out
}

// help replaces cobra's help command, which exits with 0 for an unknown command.
func help() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Describe a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			at := cmd.Root()
			for _, word := range args {
				next, _, err := at.Find([]string{word})
				if err != nil || next == at {
					return UsageError(unknownCommand(at, strings.ToLower(word)))
				}
				at = next
			}
			at.SetContext(cmd.Context())
			at.InitDefaultHelpFlag()
			return at.Help()
		},
	}
}
