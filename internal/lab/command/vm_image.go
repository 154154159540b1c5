// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"io"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/oci"
	"github.com/weft-net/weft/internal/vm/guestimage"
)

func newVMImageCmd(env ui.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Make the guest that weft vm run boots, and print its files",
		Long: `Builds the guest of weft vm run, unless it is cached: Debian's kernel and an initrd with busybox. --archive also writes
it as a container image that KubeVirt boots (kernelBoot): in an OCI archive, which runtimes load without a registry, also
under its digest, by which KubeVirt names it in a migration. Keys of -o json: kernel, initrd.`,
		Example: "  weft vm image\n" +
			"  weft vm image --archive weft-guest.tar --name registry.example.com/weft-guest:v1",
		Args: ui.NoArgs,
	}
	output := printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	archive := cmd.Flags().String("archive", "", "`FILE` for the guest as an image for KubeVirt's kernelBoot")
	name := cmd.Flags().String("name", "localhost/weft-guest:dev", "`NAME:TAG` of the image in the archive")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkImageName(*name); err != nil {
			return err
		}
		image, err := vmImage(cmd.Context(), env)
		if err != nil {
			return err
		}
		if *archive != "" {
			if err := writeArchive(image, *name, *archive); err != nil {
				return err
			}
		}
		if output.Document() {
			return output.Print(env.Stdout, image)
		}
		fmt.Fprintf(env.Stdout, "%s\n%s\n", image.Kernel, image.Initrd)
		return nil
	}
	return cmd
}

// checkImageName refuses names that no runtime would find again.
func checkImageName(name string) error {
	// A reference with a registry and a tag, as the distribution specification has it.
	form := regexp.MustCompile(`^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	if !form.MatchString(name) {
		return ui.Misusef("for example --name registry.example.com/weft-guest:v1", "--name %q is not HOST/NAME:TAG", name)
	}
	return nil
}

func writeArchive(image guestimage.Image, name, file string) error {
	archive, err := image.OCI(name)
	if err != nil {
		return err
	}
	if err := atomicfile.WriteFrom(file, func(w io.Writer) error { return oci.Write(w, archive) }, 0o644,
		atomicfile.CrashSafe); err != nil {
		return ui.FileError("for example --archive weft-guest.tar", "--archive", file, err)
	}
	return nil
}
