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

// Where programs tell each other of devices: those that hand them out, and those that make interfaces of them.
const (
	handedOut = "/var/run/k8s.cni.cncf.io/devinfo/dp"
	attached  = "/var/run/k8s.cni.cncf.io/devinfo/cni"
)

// deviceFileCap is the capability by which a plugin is told where it finds the device, or tells of it.
const deviceFileCap = "CNIDeviceInfoFile"

// id is the device that an interface is to be made of.
func (a asked) id() string {
	if a.device == "" && a.selection != nil {
		return a.selection.DeviceID
	}
	return a.device
}

// info is where the program that handed the device out told of it.
func (a asked) info(s Settings) string {
	if a.device == "" {
		return ""
	}
	return s.seen(filepath.Join(handedOut, flat(a.resource+"-"+a.device+"-device.json")))
}

// deviceFile is where an attachment tells of its device.
func deviceFile(label string, r model.Request) string {
	return filepath.Join(attached, flat(label+"-"+r.ContainerID+"_"+r.IfName))
}

// flat makes one file's name of several words.
func flat(name string) string { return strings.ReplaceAll(name, "/", "-") }

// KeepDeviceInfo copies what was told of the attachment's device to where its plugins look for it.
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
		return model.Faultf(model.CodeIO, "", "device information %s: %w", path, plain(err))
	}
	if err := os.WriteFile(path, raw, 0o444); err != nil {
		return model.Faultf(model.CodeIO, "", "device information %s: %w", path, plain(err))
	}
	return nil
}
