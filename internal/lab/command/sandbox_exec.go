// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox"
	"github.com/weft-net/weft/internal/sandbox/container"
)

func newSandboxExecCmd(env ui.Env, f *sandboxFlags) *cobra.Command {
	var namespace, name string
	cmd := &cobra.Command{
		Use:   "exec [NAMESPACE/]POD -- COMMAND [ARG...]",
		Short: "Run a command in the namespaces of a container",
		Long:  "Runs a command in the namespaces and with the environment of a running container, and exits with its exit code.",
		Example: "  weft sandbox exec web -- ip addr\n" +
			"  weft sandbox exec -c sidecar default/web -- cat /etc/resolv.conf",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) == 2 && args[1] == "--" {
				return missingCommand(args, "[NAMESPACE/]POD", "weft sandbox exec web -- ip addr")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[1] == "--" {
				args = append(args[:1:1], args[2:]...)
			}
			ns, pod := podName(args[0], namespace)
			return execInPod(cmd.Context(), env, sandbox.NewClient(f.stateDir), ns, pod, name, args[1:])
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "`NAMESPACE` of a pod without one")
	cmd.Flags().StringVarP(&name, "container", "c", "", "`NAME` of the container (default: the first regular one)")
	cmd.ValidArgsFunction = complete.Args(f.pods)
	return cmd
}

// execInPod runs a command in the namespaces of a pod's container, the first regular one if name is empty.
func execInPod(ctx context.Context, env ui.Env, runtime *sandbox.Client, ns, pod, name string, argv []string) error {
	d, err := runtime.Get(ctx, ns, pod)
	if err != nil {
		return err
	}
	c, err := findContainer(d.Pod, name)
	if err != nil {
		return err
	}
	if c.State != string(container.Running) {
		return model.Errorf(model.CodeUnknownContainer, "", "container %s of pod %s/%s is not running but %s", c.Name, ns,
			pod, c.State)
	}
	run := exec.Command(argv[0], argv[1:]...)
	run.Stdin, run.Stdout, run.Stderr = env.Stdin, env.Stdout, env.Stderr
	run.Env = append(environOf(d, c.ID), container.EnvSandbox+"="+d.ID)
	err = container.Exec(c.Process, run)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return ui.Exit(container.ExitCode(exit.ProcessState))
	}
	if err != nil {
		return fmt.Errorf("command %q: %w", argv[0], err)
	}
	return nil
}

// environOf returns the environment of a container's command, with the caller's TERM.
func environOf(d sandbox.Detail, id string) []string {
	var env []string
	for _, c := range d.All {
		if c.ID == id {
			env = append(env, c.Env...)
		}
	}
	if term, ok := os.LookupEnv("TERM"); ok {
		env = append(env, "TERM="+term)
	}
	return env
}
