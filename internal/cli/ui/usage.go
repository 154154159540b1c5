// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
)

// strict makes errors of the command line known as such, in cmd and all commands below it: cobra has no type for them,
// and prints help, with success, for an unknown command of a group.
func strict(cmd *cobra.Command) {
	if cmd.HasSubCommands() {
		strictGroup(cmd)
	}
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		var err error
		if check != nil {
			err = check(cmd, args)
		}
		for _, further := range []func() error{cmd.ValidateRequiredFlags, cmd.ValidateFlagGroups} {
			if err == nil {
				err = further()
			}
		}
		return UsageError(err)
	}
	for _, c := range cmd.Commands() {
		strict(c)
	}
}

// strictGroup refuses words that are no command of the group, and, where the group does nothing itself, their absence.
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
		cmd.SetOut(cmd.ErrOrStderr()) // it is no answer
		if err := cmd.Help(); err != nil {
			return err
		}
		return Exit(Misuse)
	}
}

// unknownCommand suggests the nearest command of the group, or one of that name elsewhere.
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
	} else if there := elsewhere(group.Root(), word); len(there) > 0 {
		hint = fmt.Sprintf("did you mean `%s`?", strings.Join(there, "` or `"))
	}
	return model.Faultf(model.CodeInvalidConf, hint, "unknown command %q for %q", word, group.CommandPath())
}

// elsewhere finds the commands of that very name.
func elsewhere(cmd *cobra.Command, name string) []string {
	var out []string
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		if c.Name() == name {
			out = append(out, c.CommandPath())
		}
		out = append(out, elsewhere(c, name)...)
	}
	return out
}

// flagError is what is wrong with a flag. A word before it that is no command is the error that comes first.
func flagError(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return UsageError(unknownCommand(cmd, words[0]))
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return UsageError(err)
	}
	hint := fmt.Sprintf("`%s --help` lists the flags", cmd.CommandPath())
	name := unknown.GetSpecifiedName()
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := cni.Nearest(name, names); len(name) > 1 && near != "" {
		hint = fmt.Sprintf("did you mean --%s?", near)
	}
	return UsageError(model.Faultf(model.CodeInvalidConf, hint, "%w", err))
}

// help replaces cobra's own, which succeeds for commands that there are not.
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
