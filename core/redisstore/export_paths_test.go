package redisstore

// TakeText is the script of takes.
var TakeText = takeScript.text.(string)
