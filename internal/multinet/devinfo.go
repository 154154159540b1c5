// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Directories of device information files: those of device plugins, and those of CNI plugins.
const (
	handedOut = "/var/run/k8s.cni.cncf.io/devinfo/dp"
	attached  = "/var/run/k8s.cni.cncf.io/devinfo/cni"
)

// deviceFileCap is the capability with the path of a plugin's device information file.
const deviceFileCap = "CNIDeviceInfoFile"

// id returns the device for an interface.
func (a podRequest) id() string {
	if a.device == "" && a.selection != nil {
		return a.selection.DeviceID
	}
	return a.device
}

// info returns the path of the device plugin's file.
func (a podRequest) info(s Settings) string {
	if a.device == "" {
		return ""
	}
	return s.seen(filepath.Join(handedOut, flat(a.resource+"-"+a.device+"-device.json")))
}

// deviceFile returns the path of an attachment's file.
func deviceFile(label string, r model.Request) string {
	return filepath.Join(attached, flat(label+"-"+r.ContainerID+"_"+r.IfName))
}

// flat returns a name without slashes, for a file.
func flat(name string) string { return strings.ReplaceAll(name, "/", "-") }

// KeepDeviceInfo copies the device plugin's file to the path that the attachment's plugins read.
func (a Attachment) KeepDeviceInfo() error {
	if a.deviceInfo == "" || a.Request.Origin == nil {
		return nil
	}
	raw, err := readFile(a.deviceInfo)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // then the plugin may write it
	}
	if err != nil {
		return err
	}
	path := a.Request.Origin.DeviceFile
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return model.Errorf(model.CodeIO, "", "device information %s: %w", path, plain(err))
	}
	if err := os.WriteFile(path, raw, 0o444); err != nil {
		return model.Errorf(model.CodeIO, "", "device information %s: %w", path, plain(err))
	}
	return nil
}
