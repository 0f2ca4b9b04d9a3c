# cmake -DIN=FILE -DOUT=HEADER -DNAME=ARRAY -P embed.cmake   the bytes of a file as an array in C
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUT} "static const unsigned char ${NAME}[] = {${bytes}};\n")
